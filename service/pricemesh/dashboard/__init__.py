"""The page that shows a city at work, and the live feed it reads. It looks on; nothing waits for it."""
