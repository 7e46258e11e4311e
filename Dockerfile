# The gateway, which makes its sandboxes through the Docker Engine whose socket it is given.
#
#   docker build -t kernelgate .
#
# The same sources and packages give the same binaries. docker-compose.yml runs it.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS build
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        cmake gcc libc6-dev libcurl4-openssl-dev libczmq-dev libevent-dev libjansson-dev \
        libseccomp-dev libsodium-dev libzmq3-dev ninja-build pkg-config
WORKDIR /src
COPY CMakeLists.txt CMakePresets.json ./
COPY cmake cmake
COPY src src
RUN cmake --preset release >/dev/null && cmake --build --preset release \
    && strip build/release/bin/kernelgate build/release/bin/kernelgate-agent

FROM ${BASE}
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        ca-certificates curl libcurl4 libczmq4 libevent-2.1-7 libevent-pthreads-2.1-7 libjansson4 \
        libsodium23 libzmq5 \
    && apt-get clean && rm -rf /var/lib/apt/lists/* \
    && groupadd -g 10001 kernelgate && useradd -u 10001 -g 10001 -d / -s /usr/sbin/nologin -M kernelgate
COPY kernelspec /tmp/kernelspec
RUN cd /tmp/kernelspec && for spec in */kernel.json; do \
        install -D -m 644 "$spec" "/usr/local/share/kernelgate/kernelspec/$spec" || exit 1; \
    done && rm -rf /tmp/kernelspec
COPY deploy/docker/entrypoint /usr/local/bin/kernelgate-entrypoint
COPY --from=build /src/build/release/bin/kernelgate /src/build/release/bin/kernelgate-agent \
    /usr/local/bin/
ENV KERNELGATE_PROVISIONER=docker \
    KERNELGATE_HOST=0.0.0.0 \
    KERNELGATE_STATE_DIR=/run/kernelgate
USER 10001:10001
EXPOSE 16010
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
    CMD ["curl", "-fsS", "-o", "/dev/null", "http://127.0.0.1:16010/healthz"]
ENTRYPOINT ["kernelgate-entrypoint"]
CMD ["serve"]
