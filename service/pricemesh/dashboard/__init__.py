"""The page that shows a city at work, and the live feed it reads. It only observes: no price waits for it."""
