# SPDX-License-Identifier: Apache-2.0
# Read by ipykernel from <environment>/etc/ipython: settings for a kernel used by programs.
c = get_config()  # noqa: F821

# Nobody reads the history, and SQLite on a tmpfs would only cost memory and start time.
c.HistoryManager.enabled = False

# Tracebacks as plain text.
c.InteractiveShell.colors = "nocolor"

# A lone surrogate must not cause a message to be lost.
c.Session.packer = "kernelgate_kernel.pack"
c.Session.unpacker = "kernelgate_kernel.unpack"

# Every cell gets a reply that says how it ended.
c.IPKernelApp.kernel_class = "kernelgate_ipkernel.IPythonKernel"

# Complete text files; one large print does not become one large message.
c.IPKernelApp.outstream_class = "kernelgate_streams.OutStream"

c.InteractiveShellApp.extensions = ["kernelgate_kernel"]
