"""The names of columns in files, the same for an export and an import. Knows no file format.

A feature's column has the feature's own name. Where that name is taken, by another column or by a feature of
the other part, whatever its case, or has a prefix of its own, the column is called `shared:NAME` or
`local:NAME`.
"""

from collections import Counter
from collections.abc import Sequence

from pricemesh.core.features import FeatureSpace
from pricemesh.errors import InvalidParameter

DECISION_ID = "decision_id"
TIME = "time"
PRICE = "price"
SOLD = "sold"
REWARD = "reward"
PROPENSITY = "propensity"
ARM = "arm"
SUBJECT = "subject"
ESTIMATE, RADIUS = "estimate", "radius"  # of the arm that was chosen
POLICY = "policy"
LEARNER_VERSION = "learner_version"
LIMITED_BY = "limited_by"
CONTRIBUTED_BY = "contributed_by"
FEEDBACK_TIME = "feedback_time"
FEEDBACK_VERSION = "feedback_version"
BY_DEFAULT = "by_default"
RETRACTED = "retracted"
IMPORT = "import"
CHANCE = "chance"
NUMBER = "number"

DEFAULT_AFTER_FEATURES = (
    PRICE,
    ARM,
    PROPENSITY,
    SOLD,
    REWARD,
    FEEDBACK_TIME,
    FEEDBACK_VERSION,
    BY_DEFAULT,
    RETRACTED,
    ESTIMATE,
    RADIUS,
    CHANCE,
    POLICY,
    LEARNER_VERSION,
    SUBJECT,
    LIMITED_BY,
    CONTRIBUTED_BY,
)
ON_REQUEST = (NUMBER, IMPORT)
OF_PURCHASES = (SOLD, CHANCE)
# Groups: names that stand for several columns where columns are chosen.
DEFAULT, ALL, FEATURES, ESTIMATES, RADII = "default", "all", "features", "estimates", "radii"
GROUPS = (DEFAULT, ALL, FEATURES, ESTIMATES, RADII)
RESERVED = frozenset({DECISION_ID, TIME, *DEFAULT_AFTER_FEATURES, *ON_REQUEST, *GROUPS})
SHARED_PREFIX, LOCAL_PREFIX = "shared:", "local:"
ESTIMATE_PREFIX, RADIUS_PREFIX = "estimate:", "radius:"  # of one arm, by its number
FAULT_PREFIX = "fault:"  # of a row that could not be imported
FAULT_COLUMNS = (f"{FAULT_PREFIX}line", f"{FAULT_PREFIX}column", f"{FAULT_PREFIX}reason")
PREFIXES = (SHARED_PREFIX, LOCAL_PREFIX, ESTIMATE_PREFIX, RADIUS_PREFIX, FAULT_PREFIX)


def feature_columns(space: FeatureSpace) -> list[str]:
    """The names of the features' columns, in the order of a context's vector."""
    parts = [
        *((SHARED_PREFIX, feature.name) for feature in space.shared),
        *((LOCAL_PREFIX, feature.name) for feature in space.local),
    ]
    uses = Counter(name.casefold() for _, name in parts)

    def column(prefix: str, name: str) -> str:
        folded = name.casefold()
        is_taken = folded in RESERVED or uses[folded] > 1 or folded.startswith(PREFIXES)
        return f"{prefix}{name}" if is_taken else name

    return [column(prefix, name) for prefix, name in parts]


class ColumnNames:
    """The columns that a city's export can have."""

    def __init__(self, space: FeatureSpace, arms: int, *, is_purchase: bool) -> None:
        self.features = feature_columns(space)
        self.estimates = [f"{ESTIMATE_PREFIX}{arm}" for arm in range(arms)]
        self.radii = [f"{RADIUS_PREFIX}{arm}" for arm in range(arms)]
        rest = [name for name in DEFAULT_AFTER_FEATURES if is_purchase or name not in OF_PURCHASES]
        self.default = [DECISION_ID, TIME, *self.features, *rest]
        self.all = [*self.default, *ON_REQUEST, *self.estimates, *self.radii]

    def choose(self, names: Sequence[str]) -> list[str]:
        """The columns that are named, groups spelled out, each once. Without names, the default ones."""
        groups = {
            DEFAULT: self.default,
            ALL: self.all,
            FEATURES: self.features,
            ESTIMATES: self.estimates,
            RADII: self.radii,
        }
        known = set(self.all)
        unknown = [name for name in names if name not in groups and name not in known]
        if unknown:
            raise InvalidParameter(
                f"there is no column {unknown[0]!r:.120}: the columns are {', '.join(self.default)}; on "
                f"request {', '.join((*ON_REQUEST, *GROUPS[1:]))}"
            )
        chosen = [name for each in names or [DEFAULT] for name in groups.get(each, [each])]
        return list(dict.fromkeys(chosen))
