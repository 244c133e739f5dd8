from hypothesis import settings

from support.effort import effort, is_long

# Timings on shared machines vary too much for a deadline to mean anything. The short form tries
# the same examples each time, so that a red run tells of the change and not of the dice.
settings.register_profile(
    "laws", deadline=None, max_examples=effort(15, 1_000), derandomize=not is_long()
)
settings.load_profile("laws")
