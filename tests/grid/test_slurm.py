"""Jobs through submitit, on its executor of local processes."""

import pytest

from relumt.errors import UserError
from relumt.grid import slurm
from relumt.grid.jobs import jobs_of
from relumt.grid.states import States
from tests.grid.conftest import cells


@pytest.fixture(autouse=True)
def threads(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def test_jobs_run_and_their_ends_are_told(root, tmp_path):
    jobs = jobs_of(cells("one", "fails"), [1], tmp_path / "runs", root, ())
    states = States(jobs, quiet=True, together=1)
    slurm.run(jobs, slurm.executor(tmp_path / "slurm", "local", {"timeout_min": "5"}), states, states.table, every=0.1)
    assert [states.of[job] for job in jobs] == ["done", "failed"]
    assert "it is broken" in (jobs[1].folder / "grid.log").read_text()


def test_a_preempted_job_asks_to_be_queued_again(root, tmp_path):
    from submitit.helpers import DelayedSubmission

    (job,) = jobs_of(cells("one"), [1], tmp_path, root, ())
    again = slurm.Submitted(job).checkpoint()
    assert isinstance(again, DelayedSubmission) and again.function == slurm.Submitted(job)


def test_an_unknown_parameter_and_no_cluster_end_in_one_line(tmp_path):
    with pytest.raises(UserError, match=r"submitit: .*no_such"):
        slurm.executor(tmp_path, "local", {"no_such": "1"})
    with pytest.raises(UserError, match="submitit: "):
        slurm.executor(tmp_path, "slurm", {"timeout_min": "5"})
    with pytest.raises(UserError, match="needs a time limit"):
        slurm.executor(tmp_path, "slurm", {"slurm_partition": "gpu"})


def test_parameters_are_numbers_where_they_are_written_as_such():
    assert [slurm.number(value) for value in ("600", "1.5", "007", "1e5", "nan", "gpu")] == [
        600, 1.5, "007", "1e5", "nan", "gpu",
    ]  # fmt: skip


class Full:
    """An executor whose queue is full after the first job."""

    def __init__(self, made):
        self.made, self.count = made, 0

    def submit(self, job):
        from submitit.core.utils import FailedJobError

        self.count += 1
        if self.count > 1:
            raise FailedJobError("sbatch: QOSMaxSubmitJobPerUserLimit")
        return self.made.submit(job)


def test_what_was_submitted_is_followed_where_another_is_refused(root, tmp_path, capsys):
    jobs = jobs_of(cells("one", "two"), [1], tmp_path / "runs", root, ())
    states = States(jobs, quiet=True, together=1)
    made = Full(slurm.executor(tmp_path / "slurm", "local", {"timeout_min": "5"}))
    slurm.run(jobs, made, states, states.table, every=0.1)
    assert [states.of[job] for job in jobs] == ["done", "failed"]
    assert "data/two/1: not submitted: sbatch: QOSMaxSubmitJobPerUserLimit" in capsys.readouterr().err
