"""How many examples a property test draws: `EXAMPLES`, and fewer where a parameter repeats it for many places."""

from hypothesis import HealthCheck, settings

EXAMPLES = 30
FEW = settings(max_examples=6)

# Tests share the machine with each other: how long one takes says nothing of what it tests. A folder may serve many
# examples, each of which writes its file anew.
SHARED_MACHINE = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)
