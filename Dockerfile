# Built in one stage, run in another: the image holds Python, Freshet and its locked requirements, and runs as no one.
FROM python:3.11.14-slim-bookworm AS build
WORKDIR /src
RUN python -m venv --without-pip /freshet
COPY requirements/run.txt requirements/run.txt
RUN pip --python /freshet/bin/python install --no-cache-dir --require-hashes -r requirements/run.txt
COPY pyproject.toml README.md ./
COPY schema schema
COPY streams streams
COPY api api
COPY ops ops
RUN pip --python /freshet/bin/python install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.11.14-slim-bookworm
COPY --from=build /freshet /freshet
RUN install -d -o 10001 -g 10001 /data
ENV PATH=/freshet/bin:$PATH PYTHONUNBUFFERED=1 FRESHET_DATA=/data
WORKDIR /tmp
USER 10001:10001
VOLUME /data
CMD ["freshet", "api"]
