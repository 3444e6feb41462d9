# One image for every program; docker-compose.yml selects the program, its user and its secrets.
ARG NODE=node:24.21.0-bookworm-slim@sha256:0e0ff40c39bc087845bfb27465a0df4ea419520094bc35842ff83dd8cbe6f9b6

FROM ${NODE} AS build
WORKDIR /svc
COPY package.json package-lock.json ./
COPY sdk/package.json sdk/
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY . .
RUN npx tsc --build programs api/browser \
  && npx rolldown --config api/browser/rolldown.config.js

# Only packages that the programs import: none for builds, tests or the embedded database.
FROM ${NODE} AS dependencies
WORKDIR /svc
COPY package.json package-lock.json ./
COPY sdk/package.json sdk/
RUN npm ci --omit=dev --omit=optional --omit=peer --ignore-scripts --no-audit --no-fund \
  && rm -rf node_modules/@svc-proofs

FROM ${NODE}
# Node 24 would let the young generation of each program grow to 128 MiB.
ENV NODE_ENV=production NODE_OPTIONS=--max-semi-space-size=16
WORKDIR /svc
# Root owns these files, and the programs can only read them: a compromised program cannot change its code.
COPY package.json ./
COPY sql/schema.txt sql/schema.txt
COPY sql/migrations sql/migrations
COPY policy/default policy/default
# The API documentation takes its examples from these files.
COPY protocol/vectors/proof-export.json protocol/vectors/proof-export.json
COPY protocol/vectors/full-log.json protocol/vectors/full-log.json
COPY --from=dependencies /svc/node_modules node_modules
COPY --from=build /svc/dist dist
# A new volume takes the owner of its folder in the image: publisher, fsck, monitor and witness own these folders.
RUN install -d -o 10004 -g 10004 -m 0755 /srv/public
RUN install -d -o 10007 -g 10007 -m 0700 /srv/fsck
RUN install -d -o 10009 -g 10009 -m 0700 /srv/monitor
RUN install -d -o 10010 -g 10010 -m 0700 /srv/witness
# The user `nobody`, so that a container without a configured user cannot read any secret.
USER 65534:65534
# Signals must reach the program: the entry point of the official image may start a shell first.
ENTRYPOINT []
CMD ["node", "-e", "console.error('name a program, as docker-compose.yml does'); process.exit(2)"]
