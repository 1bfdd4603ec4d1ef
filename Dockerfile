# A wheel of this tree, installed with the pinned dependencies into /venv (`build`); then that alone on a slim base, the
# last stage. At run time only /data (the working directory: SQLite, keys) and /tmp are written to, so `--read-only`
# works. `balancer` is HAProxy for docker-compose.yml, which brings its configuration.
FROM python:3.12-slim AS build
ARG EXTRAS=""
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY migrations migrations
COPY service service
RUN --mount=type=cache,target=/root/.cache/pip \
    pip wheel --disable-pip-version-check --no-deps --wheel-dir /wheel . \
 && python -m venv --without-pip /venv \
 && pip --disable-pip-version-check --python /venv/bin/python install -c constraints.txt \
      "$(ls /wheel/*.whl)${EXTRAS:+[$EXTRAS]}"

FROM python:3.12-slim AS balancer
RUN apt-get update \
 && apt-get install --yes --no-install-recommends haproxy \
 && rm -rf /var/lib/apt/lists/*
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGUSR1
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
ENTRYPOINT ["haproxy", "-W", "-db"]

FROM python:3.12-slim
ARG VERSION=dev
ARG REVISION=""
LABEL org.opencontainers.image.title="pricemesh" \
      org.opencontainers.image.description="One city's prices, learned together with other cities by gossip" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --gid 10001 pricemesh \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin pricemesh \
 && install --directory --owner=pricemesh --group=pricemesh --mode=0750 /data
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 MPLCONFIGDIR=/tmp/matplotlib \
    PRICEMESH_REVISION=$REVISION
USER 10001:10001
WORKDIR /data
EXPOSE 8000
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
ENTRYPOINT ["pricemesh"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000"]
