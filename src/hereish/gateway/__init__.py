"""The gateway: a phone's own app in, a private location out, and a ledger that never lies.

`hereish serve` runs it. Data flows one way: protocols read a request into fixes, the ledger turns
fixes into releases in one transaction, and what leaves is made of releases alone.
"""
