"""Where the parts meet: one city as an application, and the process that serves it."""
