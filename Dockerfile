# FedGuard on a CPU, as a user without rights: docs/containers.md. Two images, since Flower and the dashboard want other versions of packages.
ARG PYTHON=3.12.11-slim-bookworm

FROM python:${PYTHON} AS builder
ARG TORCH=2.13.0
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY . .
RUN python -m venv /opt/fedguard \
    && /opt/fedguard/bin/pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "torch==$TORCH"

FROM builder AS flower-builder
RUN /opt/fedguard/bin/pip install '.[flower]'

FROM builder AS dashboard-builder
RUN /opt/fedguard/bin/pip install --constraint constraints.txt '.[dashboard]'

FROM python:${PYTHON} AS base
RUN useradd --uid 10001 --no-create-home fedguard \
    && install --directory --owner=fedguard /runs /work
ENV PATH=/opt/fedguard/bin:$PATH HOME=/tmp FLWR_HOME=/tmp/flwr OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /work
USER 10001

FROM base AS flower
COPY --from=flower-builder /opt/fedguard /opt/fedguard
EXPOSE 8000
CMD ["flower-superlink", "--help"]

FROM base AS dashboard
COPY --from=dashboard-builder /opt/fedguard /opt/fedguard
EXPOSE 8501
ENTRYPOINT ["fedguard"]
CMD ["dashboard", "--store", "/runs", "--address", "0.0.0.0"]
