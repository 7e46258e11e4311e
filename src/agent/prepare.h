// SPDX-License-Identifier: Apache-2.0
// `kernelgate-agent --prepare`: the hook that an OCI runtime calls on the host, as root, when a
// container's mounts are made and before anything runs in it.
#pragma once

// Reads the container's state from stdin. Bounds what the kernel counts by user namespace, and also
// for the host's root, in that of the container. Where `root` is not NULL, gives the container,
// whose root is mounted there, device files of its own instead of the host's, mounts /mnt/data a
// second time at /home/user if the image has a folder there, and mounts `overlays` in it: pairs of
// a path and the options of a read-only overlay, up to a NULL. Returns an exit status; what failed
// is on stderr.
int prepare_main(const char *root, char *const *overlays);
