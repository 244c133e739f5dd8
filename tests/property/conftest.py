from hypothesis import settings

from support.effort import effort

# Timings on shared machines vary too much for a deadline to mean anything.
settings.register_profile("laws", deadline=None, max_examples=effort(30, 1_000))
settings.load_profile("laws")
