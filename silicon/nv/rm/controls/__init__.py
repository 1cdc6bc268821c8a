"""Controls: requests to an object by a command's number. A row for each: name, parameters, who answers, and why."""
