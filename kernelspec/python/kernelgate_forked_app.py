# SPDX-License-Identifier: Apache-2.0
"""An ipykernel application of which the zygote has made most: its settings, its kernel and its shell.

Only what differs from kernel to kernel is left to a fork: sockets, threads, keys, ids.
So a fork runs less, and writes to fewer pages that it shares with the zygote.

kernel.json names prepare(), which the zygote calls before the first fork.
"""

import atexit
import os
import sys
import uuid
from pathlib import Path

from ipykernel import ipkernel, kernelapp
from jupyter_client import session

# Settings name the classes that they are for, so these keep the names of their base classes.


class IPythonKernel(ipkernel.IPythonKernel):
    """A kernel that exists before its sockets."""

    @classmethod
    def instance(cls, *args, **members):
        """Called once by the zygote, and by the application in the fork with the rest of the members."""
        if not cls.initialized():
            return super().instance(*args, **members)
        kernel = super().instance()
        if members:
            kernel._take(members)
        return kernel

    def _take(self, members):
        for name in members.keys() - {"parent", "log", "profile_dir", "user_ns"}:
            setattr(self, name, members[name])
        self.ident = str(uuid.uuid4())
        self._stdout, self._stderr = sys.stdout, sys.stderr
        for part in (self.shell.displayhook, self.shell.display_pub):
            part.session = self.session
            part.pub_socket = self.iopub_socket
        self.shell.displayhook.topic = self._topic("execute_result")
        if hasattr(self, "debugger"):
            self.debugger = self.debugger_class(
                self.log,
                self.debugpy_stream,
                self._publish_debug_event,
                self.debug_shell_socket,
                self.session,
                self._kernel_modules,
                self.debug_just_my_code,
                self.filter_internal_frames,
            )
        # Registered again, it runs before what was registered earlier.
        atexit.unregister(self.shell.atexit_operations)
        atexit.register(self.shell.atexit_operations)
        sys.modules["__main__"] = self.shell.user_module


class IPKernelApp(kernelapp.IPKernelApp):
    """An application without the steps of initialize() that the zygote has done."""

    def prepare(self, argv):
        """In the zygote. `argv` has a placeholder for the connection file's path."""
        super(kernelapp.IPKernelApp, self).initialize(argv)
        self.session = session.Session(parent=self)
        self.kernel_class = IPythonKernel
        self.kernel = IPythonKernel.instance(
            parent=self, log=self.log, profile_dir=self.profile_dir, user_ns=self.user_ns
        )
        self.kernel.shell._sys_modules_keys = set(sys.modules)

    def _is_prepared(self):
        return self.kernel is not None

    def parse_command_line(self, argv=None):
        if not self._is_prepared():
            super().parse_command_line(argv)
            return
        argv = sys.argv[1:]
        self.connection_file = argv[argv.index("-f") + 1]
        for config in (self.config, self.cli_config):
            config.IPKernelApp.connection_file = self.connection_file

    def init_connection_file(self):
        # The session of messages was made with the application; its key is in the connection file.
        self.session.session = session.new_id()
        self.session.pid = os.getpid()
        super().init_connection_file()

    def init_profile_dir(self):
        if not self._is_prepared():
            super().init_profile_dir()
            return
        folder = Path(self.profile_dir.location)
        if any(
            folder.glob("*config*")
        ):  # the session's own settings, which the zygote has not read
            os.execv(sys.orig_argv[0], sys.orig_argv)
        folder.mkdir(parents=True, exist_ok=True)
        self.profile_dir.check_dirs()

    def init_config_files(self):
        if not self._is_prepared():
            super().init_config_files()

    def load_config_file(self, *args, **options):
        if not self._is_prepared():
            super().load_config_file(*args, **options)

    def init_code(self):
        """Does what IPython's does, but for its last step: the zygote has noted the loaded modules. To
        note them again would write to the pages of all their names."""
        self._run_startup_files()
        self._run_exec_lines()
        self._run_exec_files()
        if self.hide_initial_ns:
            self.shell.user_ns_hidden.update(self.shell.user_ns)
        self._run_cmd_line_code()
        self._run_module()
        sys.stdout.flush()
        sys.stderr.flush()

    def update_config(self, config):
        if not self._is_prepared():
            super().update_config(config)


def prepare(argv):
    """Makes the application that ipykernel_launcher uses in the forks."""
    main = sys.modules["__main__"]
    IPKernelApp.instance().prepare(argv)
    sys.modules["__main__"] = main
