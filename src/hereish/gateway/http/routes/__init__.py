"""The routes, one module per group: /v1, the phones' apps, the operator, and the pages."""
