"""Queues that are pushed: every job is one signed HTTP POST of its envelope, whatever its name.

    delayq push orders --to https://shop.example/hooks/orders --secret-file orders.secret

A worker does it, with everything a worker has: leases, retries, limits, signals. `handler.py` is what it runs,
`request.py` what is sent, `verdict.py` what an answer means, `registering.py` how a worker learns of it.
"""
