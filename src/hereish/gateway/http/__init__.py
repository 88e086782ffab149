"""The HTTP side of the gateway: server, middleware, routes and protocols."""
