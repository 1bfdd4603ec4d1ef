"""What is wrong with a simulated server now."""


class ServerFaults:
    def __init__(self) -> None:
        self.is_down = False
        self.is_full = False
        self.is_slow = False
        self.commits_to_refuse = 0
        self.answers_to_lose = 0  # of commits that do happen
        self.cuts: dict[str, bool] = {}  # by a client's name: whether it hears nothing at all
        self.disturbed_at = 0.0  # when anything was last wrong; on the virtual clock

    @property
    def is_well(self) -> bool:
        """Cuts apart."""
        faults = self.commits_to_refuse + self.answers_to_lose
        return not (self.is_down or self.is_full or self.is_slow or faults)

    def mend(self) -> None:
        self.is_full = self.is_slow = self.is_down = False
        self.commits_to_refuse = self.answers_to_lose = 0
