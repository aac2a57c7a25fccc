# Built in one stage, run in another: the image holds Python, Freshet and its locked requirements, and runs as no one.
FROM python:3.11-slim AS build
WORKDIR /src
RUN python -m venv /freshet
COPY requirements/run.txt requirements/run.txt
RUN /freshet/bin/pip install --no-cache-dir --require-hashes -r requirements/run.txt
COPY pyproject.toml README.md ./
COPY schema schema
COPY streams streams
COPY api api
COPY ops ops
RUN /freshet/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.11-slim
COPY --from=build /freshet /freshet
RUN useradd --uid 10001 --no-create-home freshet && install -d -o freshet -g freshet /data
ENV PATH=/freshet/bin:$PATH PYTHONUNBUFFERED=1 FRESHET_DATA=/data
WORKDIR /tmp
USER freshet
VOLUME /data
CMD ["freshet", "api"]
