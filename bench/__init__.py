"""Every number that we claim, one command each, seeded; enters arguments, leaves a results page and one JSON line."""
