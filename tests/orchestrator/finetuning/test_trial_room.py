"""Room for trials: as many as fit on the cluster, and one more; a fake clock, no Ray.

Run alone: pytest tests/orchestrator/finetuning/test_trial_room.py
"""

from orchestrator.finetuning.trial_room import TrialRoom


class Cluster:
    """A cluster of some places, and a clock."""

    def __init__(self, num_places: int) -> None:
        self.num_places, self.now, self.num_asked = num_places, 0.0, 0
        self.room = TrialRoom(self.count_places, lambda: self.now)

    def count_places(self) -> int:
        self.num_asked += 1
        return self.num_places

    def fill(self) -> int:
        """Give Tune trials until there is no room; returns how many."""
        num_given = 0
        while self.room.has_room():
            self.room.add()
            num_given += 1
        return num_given


def test_as_many_trials_as_fit_are_out_at_once_and_one_more() -> None:
    assert Cluster(6).fill() == 7


def test_a_trial_that_has_ended_makes_room_for_one() -> None:
    cluster = Cluster(6)
    cluster.fill()
    cluster.room.count(6)
    assert cluster.fill() == 1


def test_nodes_that_join_are_filled_and_the_cluster_is_asked_rarely() -> None:
    cluster = Cluster(2)
    assert cluster.fill() == 3
    cluster.num_places = 4
    assert cluster.fill() == 0, "looked at a moment ago"
    cluster.now = 5.0
    assert (cluster.fill(), cluster.num_asked) == (2, 2)


def test_a_cluster_without_a_place_gets_one_trial_which_its_autoscaler_sees() -> None:
    assert Cluster(0).fill() == 1
