# The server as a container image: `docker build --tag millrace .`, then see docs/deploy.md.
FROM rust:1-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --profile dist --locked --package millrace-cli

FROM debian:bookworm-slim
# Certificates: for stores and clients that are reached over TLS.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -m 0700 -o 65532 -g 65532 /var/lib/millrace
COPY --from=build /src/target/dist/millrace /usr/local/bin/millrace
COPY LICENSE-MIT LICENSE-APACHE /usr/share/doc/millrace/
USER 65532:65532
WORKDIR /var/lib/millrace
VOLUME /var/lib/millrace
# Others can reach a container, so it needs a token: the first start makes one.
ENV MILLRACE_LISTEN=0.0.0.0:7070 \
    MILLRACE_STORE=sqlite:////var/lib/millrace/millrace.db \
    MILLRACE_FIRST_TOKEN=/var/lib/millrace/admin-token
EXPOSE 7070
HEALTHCHECK --interval=10s --timeout=6s --start-period=60s CMD ["millrace", "health"]
ENTRYPOINT ["millrace"]
CMD ["serve"]
