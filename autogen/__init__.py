"""Hardware facts generated from public headers, and the classes that use them as layouts."""
