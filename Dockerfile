# An image of the program alone: no shell, no package manager, no root.
#
#   docker build --tag handfast .
#
# docs/guides/containers.md shows how to use it.

ARG RUST_IMAGE=docker.io/library/rust:1.95-bookworm
# Debian 12 with the C library and nothing to run, so the version of Debian of both images is the same.
ARG BASE_IMAGE=gcr.io/distroless/cc-debian12:nonroot
# The stage that has the program, or an image that has it as /out/handfast.
ARG PROGRAM=build

FROM ${RUST_IMAGE} AS build
WORKDIR /source
COPY . .
RUN cargo build --release --locked --bin handfast \
 && install -D --strip target/release/handfast /out/handfast \
 && mkdir /out/data

FROM ${PROGRAM} AS program

FROM ${BASE_IMAGE}
COPY --from=program /out/handfast /usr/local/bin/handfast
# The data directory is handfast-data within. A new volume takes over the owner of this directory.
COPY --from=program --chown=65532:65532 /out/data /data
WORKDIR /data
VOLUME /data
USER 65532:65532
# Other containers reach this address. The server refuses to start there without HANDFAST_AUTH=true or HANDFAST_INSECURE=true.
ENV HANDFAST_LISTEN=0.0.0.0:27017
EXPOSE 27017
HEALTHCHECK --interval=10s --timeout=6s --start-period=60s CMD ["/usr/local/bin/handfast", "ping", "--quiet"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/handfast"]
CMD ["serve"]
