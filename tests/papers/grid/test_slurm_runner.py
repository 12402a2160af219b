"""Jobs through submitit, with its executor of local processes."""

import pytest

from relumt.errors import UserError
from relumt.papers.grid.jobs import create_jobs
from relumt.papers.grid.slurm_runner import SlurmTask, create_executor, parse_value, run_on_slurm
from tests.papers.grid.conftest import experiments, make_status


class FullQueue:
    """An executor that refuses jobs after the second."""

    def __init__(self, executor):
        self.executor, self.count = executor, 0

    def submit(self, task):
        from submitit.core.utils import FailedJobError

        self.count += 1
        if self.count > 2:
            raise FailedJobError("sbatch: QOSMaxSubmitJobPerUserLimit")
        return self.executor.submit(task)


def test_submitted_jobs_run_and_the_queue_may_refuse_others(root, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    jobs = create_jobs(experiments("one", "fails", "two"), [1], tmp_path / "runs", root, ())
    status = make_status(jobs)
    executor = FullQueue(create_executor(tmp_path / "slurm", "local", {"timeout_min": "5"}))
    run_on_slurm(jobs, executor, status, refresh_interval=0.1)
    assert list(status.states.values()) == ["done", "failed", "failed"]
    assert "it is broken" in (jobs[1].folder / "grid.log").read_text()
    assert "data/two/1: not submitted: sbatch: QOSMaxSubmitJobPerUserLimit" in capsys.readouterr().err


def test_a_preempted_task_is_queued_again(root, tmp_path):
    from submitit.helpers import DelayedSubmission

    (job,) = create_jobs(experiments("one"), [1], tmp_path, root, ())
    submission = SlurmTask(job).checkpoint()
    assert isinstance(submission, DelayedSubmission) and submission.function == SlurmTask(job)


def test_invalid_parameters_and_a_missing_cluster_are_reported(tmp_path):
    with pytest.raises(UserError, match=r"submitit: .*no_such"):
        create_executor(tmp_path, "local", {"no_such": "1"})
    with pytest.raises(UserError, match="submitit: "):
        create_executor(tmp_path, "slurm", {"timeout_min": "5"})
    with pytest.raises(UserError, match="needs a time limit"):
        create_executor(tmp_path, "slurm", {"slurm_partition": "gpu"})


def test_parameters_are_numbers_if_they_look_like_python_numbers():
    texts = ["600", "1.5", "007", "1e5", "nan", "gpu"]
    assert [parse_value(text) for text in texts] == [600, 1.5, "007", "1e5", "nan", "gpu"]
