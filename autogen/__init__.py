"""Hardware facts generated from public headers, and the layouts that give them life."""
