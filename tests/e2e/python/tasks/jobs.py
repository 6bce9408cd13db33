"""The Celery application of the tests: a few tasks, one queue with priorities, results over RPC."""

import os

from celery import Celery
from kombu import Exchange, Queue

NAME = os.environ["LEPUS_CELERY_NAME"]

app = Celery("jobs", broker=os.environ["LEPUS_URI"], backend="rpc://")
app.conf.update(
    task_default_queue=NAME,
    task_default_exchange=NAME,
    task_default_routing_key=NAME,
    task_queues=[
        Queue(NAME, Exchange(NAME, "direct"), NAME, queue_arguments={"x-max-priority": 5}),
        Queue(f"{NAME}.second", Exchange(NAME, "direct"), "second"),
    ],
    task_default_priority=2,
    broker_connection_retry_on_startup=True,
    broker_heartbeat=10,
    result_expires=60,
    worker_prefetch_multiplier=4,
)

attempts = {}


@app.task
def add(one, other):
    """Adds two numbers."""
    return one + other


@app.task
def length(text):
    """How long a text is."""
    return len(text)


@app.task
def fail(text):
    """Fails with this text."""
    raise ValueError(text)


@app.task(bind=True, max_retries=5, default_retry_delay=0.1)
def succeed_at_last(self, key):
    """Fails twice, then tells how often it was tried."""
    attempts[key] = attempts.get(key, 0) + 1
    if attempts[key] < 3:
        raise self.retry(countdown=0.1)
    return attempts[key]


@app.task(acks_late=True, reject_on_worker_lost=True)
def late(value):
    """Is acknowledged only when done."""
    return value


def remove_queues():
    """Deletes what the application declared."""
    with app.connection_for_write() as connection:
        channel = connection.default_channel
        for name in (NAME, f"{NAME}.second"):
            channel.queue_delete(name)
        channel.exchange_delete(NAME)
