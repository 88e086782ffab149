"""The gateway: locations of a phone's own app in, private locations out, with a durable ledger.

`hereish serve` runs it. Data flows one way: protocols parse a request into fixes, the ledger turns
fixes into releases in one transaction, and what leaves is made of releases alone.
"""
