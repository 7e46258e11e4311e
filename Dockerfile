# The gateway's image. It creates its sandboxes through the socket of the Docker Engine.
#
#   docker build -t kernelgate .
#
# docker-compose.yml runs it. The same sources, base and packages give the same files: docs/docker.md
# says how to pin the last two.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS build
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        cmake gcc libc6-dev libcurl4-openssl-dev libczmq-dev libevent-dev libjansson-dev \
        libseccomp-dev libsodium-dev libsqlite3-dev libwslay-dev libyaml-dev libzmq3-dev ninja-build pkg-config zlib1g-dev
WORKDIR /src
COPY CMakeLists.txt CMakePresets.json ./
COPY cmake cmake
COPY src src
# The console is built below.
RUN cmake --preset release -D KG_CONSOLE=OFF >/dev/null && cmake --build --preset release
# The gateway needs only the kernelspecs; the kernels are in their own image.
COPY kernelspec kernelspec
COPY deploy/docker deploy/docker
COPY LICENSE ./
RUN DESTDIR=/image cmake --install build/release --strip >/dev/null \
    && install deploy/docker/entrypoint /image/usr/local/bin/kernelgate-entrypoint \
    && install -D -m 644 -t /image/usr/share/doc/kernelgate LICENSE

# The console's files. Node and the packages that it is built with stay here.
FROM ${BASE} AS console
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        ca-certificates python3-venv
COPY src/face/console/page /page
RUN /page/install /tools \
    && /tools/bin/node /page/build.mjs /tools /console

FROM ${BASE}
# Also the date of a new user's password.
ARG SOURCE_DATE_EPOCH=1735689600
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        ca-certificates curl libcurl4 libczmq4 libevent-2.1-7 libevent-pthreads-2.1-7 libjansson4 \
        libseccomp2 libsodium23 libsqlite3-0 libwslay1 libyaml-0-2 libzmq5 zlib1g \
    && groupadd -g 10001 kernelgate && useradd -u 10001 -g 10001 -d / -s /usr/sbin/nologin -M kernelgate \
    && apt-get clean && rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/*.log /var/cache/ldconfig/* \
        /var/cache/debconf/*-old /var/lib/dpkg/*-old /etc/*-
COPY --from=build /image /
COPY --from=console /console /usr/local/share/kernelgate/console
ENV KERNELGATE_PROVISIONER=docker \
    KERNELGATE_HOST=0.0.0.0 \
    KERNELGATE_STATE_DIR=/run/kernelgate
USER 10001:10001
EXPOSE 16010
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
    CMD ["curl", "-fsS", "-o", "/dev/null", "http://127.0.0.1:16010/healthz"]
ENTRYPOINT ["kernelgate-entrypoint"]
CMD ["serve"]
