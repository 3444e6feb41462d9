import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { logger } from '#runtime/process/log';
import { closing, type Open } from '../closing.js';
import { keepPublished } from '../lookups/keep-published.js';
import { checkMeanwhile } from '../lookups/lookup-checks.js';
import { lookupRows } from './lookup-rows.js';
import { takeSamples } from '../lookups/lookup-samples.js';
import { startNginx } from '../lookups/nginx.js';
import { loadInTurn } from '../lookups/paired-load.js';
import {
  startConstantHttp,
  startExpressFacade,
  startPinnedFacade,
} from '../lookups/public-servers.js';
import { openBenchRegistry, type BenchRegistry } from '../service/registry.js';
import type { BenchContext, Measurement, Row } from '../row.js';
import { fillTo, sizesOf } from '../growth/sizes.js';

/** How fast the public is answered, beside what a static file server makes of the same bodies. */
export const lookup: Measurement = {
  name: 'lookup',
  needs: ['wrk', 'nginx', 'taskset'],
  measure,
};

function measure(context: BenchContext): Promise<Row[]> {
  return closing(async (open) => {
    const registry = await openBenchRegistry(context.sharedDir, logger('bench', 'warn'));
    open.push(() => registry.close());
    await fillTo(registry, { ...context, ...sizesOf(context) });
    return measureOver(registry, context, open);
  });
}

const CONNECTIONS = 64;
/** Ids of each kind that are asked for. nginx keeps the file of each open. */
const SAMPLE = { whole: 10_000, quick: 1_000 };

async function measureOver(
  registry: BenchRegistry,
  { quick, dir, signal, ...context }: BenchContext,
  open: Open,
): Promise<Row[]> {
  const { recentLookupLimit } = sizesOf({ quick, ...context });
  const opened = async <T extends { close(): Promise<unknown> }>(one: Promise<T>): Promise<T> => {
    const server = await one;
    open.push(() => server.close());
    return server;
  };
  // The snapshot is kept valid as it always is, by programs that share a core with the load.
  await keepPublished(registry, recentLookupLimit, open);
  const facade = await opened(startPinnedFacade(registry, recentLookupLimit));
  const count = quick ? SAMPLE.quick : SAMPLE.whole;
  const samples = await takeSamples(registry, facade.url, { dir, recentLookupLimit, count });
  const { inWindow, older, absent, staticRoot } = samples;
  const nginxDir = join(dir, 'nginx');
  await mkdir(nginxDir, { recursive: true });
  const nginx = await opened(startNginx(nginxDir, staticRoot, inWindow.bodies.size));
  const express = await opened(startExpressFacade(registry, recentLookupLimit));
  const [path = ''] = inWindow.bodies.keys();
  const constant = await opened(startConstantHttp(facade.url + path));

  const answering = {
    hit: { server: facade, sample: inWindow },
    nginx: { server: nginx, sample: inWindow },
    miss: { server: facade, sample: absent },
    older: { server: facade, sample: older },
    express: { server: express, sample: inWindow },
  };
  // It has one answer for all, so there is nothing in it to be checked.
  const asked = { ...answering, constant: { server: constant, sample: inWindow } };
  const targets = Object.entries(asked).map(([name, { server, sample }]) => ({
    name,
    url: server.url,
    pid: server.pid,
    pathsFile: sample.pathsFile,
    isRefused: sample.status === 404,
  }));
  const plan = { rounds: quick ? 1 : 6, seconds: quick ? 1 : 4, connections: CONNECTIONS, signal };
  const rounds = await checkMeanwhile(answering, () => loadInTurn(targets, plan));
  const of = (name: keyof typeof asked) => rounds.get(name) ?? [];
  return lookupRows(
    {
      hit: of('hit'),
      nginx: of('nginx'),
      miss: of('miss'),
      older: of('older'),
      express: of('express'),
      constant: of('constant'),
    },
    `${samples.proofs.toLocaleString('en-US')} proofs, window of ${recentLookupLimit.toLocaleString('en-US')}, ${String(inWindow.bodies.size)} ids, ${String(CONNECTIONS)} connections`,
  );
}
