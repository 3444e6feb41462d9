# One image for every program; docker-compose.yml says which one runs, as whom, and with what.
ARG NODE=node:24.21.0-bookworm-slim

FROM ${NODE} AS build
WORKDIR /svc
COPY package.json package-lock.json ./
COPY sdk/package.json sdk/
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY . .
RUN npx tsc --build programs api/public/browser \
  && npx rolldown --config api/public/browser/rolldown.config.js

# What the programs import, and nothing that only builds, tests or brings up an embedded database.
FROM ${NODE} AS dependencies
WORKDIR /svc
COPY package.json package-lock.json ./
COPY sdk/package.json sdk/
RUN npm ci --omit=dev --omit=optional --omit=peer --ignore-scripts --no-audit --no-fund \
  && rm -rf node_modules/svc-sdk

FROM ${NODE}
ENV NODE_ENV=production
WORKDIR /svc
# Owned by root and written by nobody: a program that is taken over cannot change what starts next.
COPY package.json ./
COPY sql/schema.txt sql/schema.txt
COPY sql/migrations sql/migrations
COPY policy/default policy/default
# The examples of the API documentation are made from them.
COPY protocol/vectors/proof-export.json protocol/vectors/proof-export.json
COPY protocol/vectors/next.json protocol/vectors/next.json
COPY --from=dependencies /svc/node_modules node_modules
COPY --from=build /svc/dist dist
# A new volume takes this folder's owner: the publisher writes the snapshot, the monitor its state.
RUN install -d -o 10004 -g 10004 -m 0755 /srv/public
RUN install -d -o 10009 -g 10009 -m 0700 /srv/monitor
# Of nobody in particular, so that a container that was given no user can read no secret.
USER 65534:65534
# The official image's own would run a shell first; signals have to reach the program itself.
ENTRYPOINT []
CMD ["node", "-e", "console.error('name a program: docker-compose.yml does'); process.exit(2)"]
