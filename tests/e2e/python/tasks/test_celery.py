"""Celery with a worker of its own process, as a web application would use it over this broker."""

import os
import pathlib
import subprocess
import sys
import time
import uuid

import pytest

import broker

HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="module")
def application():
    """The task module with queue names nobody else uses, and a worker that serves them."""
    os.environ["LEPUS_CELERY_NAME"] = f"e2e.celery.{uuid.uuid4().hex}"
    os.environ["LEPUS_URI"] = broker.URI
    sys.path.insert(0, str(HERE))
    import jobs
    log = open(pathlib.Path(os.environ.get("LEPUS_E2E_LOGS", "/tmp")) / f"celery-worker-{os.getpid()}.log", "w")
    worker = subprocess.Popen(
        [sys.executable, "-m", "celery", "--app", "jobs", "worker", "--pool", "threads", "--concurrency", "4",
         "--queues", f"{jobs.NAME},{jobs.NAME}.second", "--loglevel", "info"],
        cwd=HERE, env={**os.environ, "PYTHONPATH": f"{HERE}:{HERE.parent}"}, stdout=log, stderr=subprocess.STDOUT)
    try:
        broker.until(lambda: worker.poll() is not None or jobs.app.control.ping(timeout=0.5))
        assert worker.poll() is None, f"the worker ended: see {log.name}"
        yield jobs
    finally:
        worker.terminate()
        worker.wait(broker.PATIENCE)
        log.close()
        jobs.remove_queues()


def test_a_task_returns_its_result(application):
    assert application.add.delay(20, 22).get(timeout=broker.PATIENCE) == 42


def test_many_tasks_return_their_results(application):
    results = [application.add.delay(number, number) for number in range(200)]
    assert [result.get(timeout=broker.PATIENCE) for result in results] == [2 * number for number in range(200)]


def test_a_failed_task_tells_its_exception(application):
    with pytest.raises(ValueError, match="as asked"):
        application.fail.delay("as asked").get(timeout=broker.PATIENCE)


def test_a_task_is_retried(application):
    assert application.succeed_at_last.delay(str(uuid.uuid4())).get(timeout=broker.PATIENCE) == 3


def test_a_task_with_a_countdown_waits(application):
    before = time.monotonic()
    assert application.add.apply_async((1, 2), countdown=1).get(timeout=broker.PATIENCE) == 3
    assert time.monotonic() - before >= 1


def test_an_expired_task_is_revoked(application):
    import celery.exceptions
    with pytest.raises(celery.exceptions.TaskRevokedError):
        application.add.apply_async((1, 2), expires=-1).get(timeout=broker.PATIENCE)


def test_a_task_may_go_to_another_queue(application):
    assert application.add.apply_async((3, 4), queue=f"{application.NAME}.second").get(timeout=broker.PATIENCE) == 7


def test_a_group_and_a_chord_gather_results(application):
    import celery
    assert celery.group(application.add.s(number, 1) for number in range(10))().get(timeout=broker.PATIENCE) == list(range(1, 11))
    chained = celery.chain(application.add.s(1, 2), application.add.s(3), application.add.s(4))
    assert chained().get(timeout=broker.PATIENCE) == 10


def test_a_large_argument_travels(application):
    assert application.length.delay("x" * 2_000_000).get(timeout=broker.PATIENCE) == 2_000_000


def test_the_worker_answers_remote_control(application):
    inspect = application.app.control.inspect(timeout=1)
    assert len(broker.until(inspect.stats)) == 1
    assert broker.until(inspect.active_queues)


def test_a_late_acknowledged_task_runs_once(application):
    assert application.late.delay(5).get(timeout=broker.PATIENCE) == 5
