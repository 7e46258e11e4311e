# SPDX-License-Identifier: Apache-2.0
"""An ipykernel application of which the zygote has made most: its settings, its kernel and its shell.

Only what differs from kernel to kernel is left to a fork: sockets, threads, keys, ids.
So a fork runs less, and writes to fewer pages that it shares with the zygote.

kernel.json names prepare(), which the zygote calls before the first fork.
"""

import atexit
import fnmatch
import os
import sys
import uuid
from collections.abc import Mapping

import kernelgate_debugger
import kernelgate_ipkernel
import zmq
from ipykernel import kernelapp
from IPython.core import application
from jupyter_client import session

# Settings name the classes that they are for, so these keep the names of their base classes.


class IPythonKernel(kernelgate_ipkernel.IPythonKernel):
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
        for name in members.keys() - {"parent", "log", "profile_dir", "user_ns", "session"}:
            setattr(self, name, members[name])
        self.ident = str(uuid.uuid4())
        self._stdout, self._stderr = sys.stdout, sys.stderr
        for part in (self.shell.displayhook, self.shell.display_pub):
            part.pub_socket = self.iopub_socket
        self.shell.displayhook.topic = self._topic("execute_result")
        if hasattr(self, "debugger"):
            self.debugger.shell_socket = self.debug_shell_socket
            self.debugger.debugpy_stream = self.debugpy_stream
        # Registered again, it runs before what was registered earlier.
        atexit.unregister(self.shell.atexit_operations)
        atexit.register(self.shell.atexit_operations)
        self._kernel_modules.append(sys.modules["__main__"].__file__)
        sys.modules["__main__"] = self.shell.user_module


class BaseIPythonApplication(application.BaseIPythonApplication):
    """IPython's steps of initialize(), which come first. In a fork they are done but for the folders."""

    def initialize(self, argv=None):
        if self.kernel is None:
            super().initialize(argv)
            return
        argv = sys.argv[1:]
        self.connection_file = argv[argv.index("-f") + 1]
        for config in (self.config, self.cli_config):
            config.IPKernelApp.connection_file = self.connection_file
        self._enter_profile_dir()

    def _enter_profile_dir(self):
        folder = self.profile_dir.location
        os.makedirs(folder, exist_ok=True)
        if any("config" in name for name in os.listdir(folder)):
            # The session's own settings, which the zygote has not read.
            os.execv(sys.orig_argv[0], sys.orig_argv)
        self.profile_dir.check_dirs()


class IPKernelApp(kernelapp.IPKernelApp, BaseIPythonApplication):
    """An application without the steps of initialize() that the zygote has done."""

    def prepare(self, argv, started):
        """In the zygote. `argv` has a placeholder for the connection file's path; `started` has the
        modules that a kernel loads until it is ready, with their files or None."""
        zygote = sys.modules["__main__"]
        super(kernelapp.IPKernelApp, self).initialize(argv)
        super().init_pdb()
        super().configure_tornado_logger()
        self.session = session.Session(parent=self)
        self.kernel_class = IPythonKernel
        self.kernel = IPythonKernel.instance(
            parent=self,
            log=self.log,
            profile_dir=self.profile_dir,
            user_ns=self.user_ns,
            session=self.session,
            debugger_class=kernelgate_debugger.Debugger,
        )
        super().init_shell()
        for extension in self.default_extensions:
            self.shell.extension_manager.load_extension(extension)
        self.shell._sys_modules_keys = set(started)
        # What a debugger neither shows nor steps into. The zygote has imported much more: all of pandas.
        self.kernel._kernel_modules[:] = filter(None, [zygote.__file__, *started.values()])
        self._fill_caches()

    def _fill_caches(self):
        """Does early what every fork would do for the first time. Each step only fills a cache."""
        _ = self.connection_dir
        self.shell.transform_cell("1")
        for pattern in ("*.py", "*.ipy"):
            fnmatch.filter((), pattern)  # as for startup files
        isinstance(1, Mapping)  # as the log does; it goes through all subclasses
        for kind in (*zmq.Context.mro(), *zmq.Socket.mro()):
            getattr(kind, "__annotations__", None)  # as when an option is set; it changes the class

    def init_extensions(self):
        """Loads all but the default ones, which the zygote has loaded."""
        names, self.default_extensions = self.default_extensions, []
        super().init_extensions()
        self.default_extensions = names

    # The zygote has done these.

    def init_pdb(self):
        pass

    def configure_tornado_logger(self):
        pass

    def init_shell(self):
        pass

    def init_connection_file(self):
        # The session of messages was made with the application; its key is in the connection file.
        self.session.session = session.new_id()
        self.session.pid = os.getpid()
        super().init_connection_file()

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


def prepare(argv, started):
    """Makes the application that ipykernel_launcher uses in the forks."""
    main = sys.modules["__main__"]
    IPKernelApp.instance().prepare(argv, started)
    sys.modules["__main__"] = main
