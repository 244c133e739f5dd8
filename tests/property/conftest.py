from hypothesis import settings

# Timings on shared machines vary too much for a deadline to mean anything.
settings.register_profile("laws", deadline=None)
settings.load_profile("laws")
