"""The operator's commands that tests need, in the words of the tool that LEPUS_CTL names."""

import os
import shlex
import subprocess

import pytest


class Tool:
    """A command line tool of a broker."""

    def __init__(self, command):
        self.command = shlex.split(command)

    def run(self, *arguments):
        """Runs one command, which must succeed."""
        # lepus takes the variables that are meant for the tests for misspelt settings.
        environment = {name: value for name, value in os.environ.items() if name == "LEPUS_DATA_DIR" or not name.startswith("LEPUS_")}
        done = subprocess.run([*self.command, *arguments], capture_output=True, text=True, timeout=60, env=environment)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout


class Rabbit(Tool):
    """rabbitmqctl."""

    def add_user(self, name, password, tags=()):
        """A new user with tags."""
        self.run("add_user", name, password)
        if tags:
            self.run("set_user_tags", name, *tags)

    def delete_user(self, name):
        """Removes a user."""
        self.run("delete_user", name)

    def permit(self, user, configure, write, read, vhost="/"):
        """Permissions of a user in a virtual host."""
        self.run("set_permissions", "-p", vhost, user, configure, write, read)

    def permit_topic(self, user, exchange, write, read):
        """Routing keys that a user may use at a topic exchange."""
        self.run("set_topic_permissions", "-p", "/", user, exchange, write, read)

    def add_vhost(self, name):
        """A new virtual host."""
        self.run("add_vhost", name)

    def delete_vhost(self, name):
        """Removes a virtual host with everything in it."""
        self.run("delete_vhost", name)

    def set_policy(self, name, pattern, definition, apply_to):
        """A policy of priority 1."""
        self.run("set_policy", "-p", "/", "--priority", "1", "--apply-to", apply_to, name, pattern, definition)

    def clear_policy(self, name):
        """Removes a policy."""
        self.run("clear_policy", "-p", "/", name)

    def close_connections(self, vhost, reason):
        """Closes every connection of a virtual host."""
        self.run("close_all_connections", "-p", vhost, reason)

    def lower_memory_limit(self):
        """Makes the broker believe that it uses too much memory."""
        self.run("set_vm_memory_high_watermark", "0.00001")

    def restore_memory_limit(self):
        """Undoes `lower_memory_limit`."""
        self.run("set_vm_memory_high_watermark", "0.4")


class Lepus(Rabbit):
    """lepus in the role of rabbitmqctl; it finds its running broker by LEPUS_DATA_DIR."""

    def run(self, *arguments):
        """Runs one command, which must succeed."""
        return super().run("ctl", *arguments)


def from_environment():
    """The tool that LEPUS_CTL names; skips the test when it names none."""
    command = os.environ.get("LEPUS_CTL")
    if not command:
        pytest.skip("LEPUS_CTL names no control tool")
    program = shlex.split(command)[0].rsplit("/", 1)[-1]
    return Rabbit(command) if program.startswith("rabbitmqctl") else Lepus(command)
