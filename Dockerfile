# syntax=docker/dockerfile:1

# The image of the command fanout: one static binary, no shell, no root.
#
#     docker build --build-arg VERSION=v1.2.3 --build-arg COMMIT=$(git rev-parse HEAD) --tag fanout .
#     docker run --volume ./fanout.yaml:/etc/fanout/fanout.yaml:ro --env DATABASE_URL --env REDIS_URL fanout
FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS build
WORKDIR /src
COPY . .
ARG TARGETOS TARGETARCH
# .git is not copied, so the build knows neither. "fanout version" and "fanout workers" show them.
ARG VERSION=v0.0.0-unknown COMMIT=
ENV GOCACHE=/go/build CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/go/build \
    go build -trimpath -buildvcs=false \
        -ldflags "-s -w -X main.stampedVersion=$VERSION -X main.stampedCommit=$COMMIT -X github.com/gorm-fanout/fanout.stampedVersion=$VERSION" \
        -o /fanout ./cmd/fanout

# Certificates of authorities, time zones and an entry in /etc/passwd, and nothing else.
FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /fanout /usr/local/bin/fanout
COPY LICENSE /usr/share/doc/fanout/LICENSE
# By number, since Kubernetes cannot tell from a name whether it is root (runAsNonRoot).
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/fanout"]
CMD ["relay", "--config", "/etc/fanout/fanout.yaml"]
