"""Pictures for the owner's eyes: they hold true positions and are not for publishing.

`hereish.viewer.page.page` makes one page of a true and a reported trace.
"""
