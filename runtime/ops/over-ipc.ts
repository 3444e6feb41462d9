import type { ChildProcess } from 'node:child_process';
import { withTimeout } from '../concurrency/promises.js';
import type { MetricOfMoment, OpsSource } from './health.js';

interface OpsRequest {
  svcOpsQuestion: 'metrics' | 'readiness';
  id: number;
}

interface OpsReply {
  svcOpsAnswer: unknown;
  id: number;
}

/** Answers requests of the parent process while the IPC channel is open. */
export function answerStarter(source: OpsSource): () => void {
  const onMessage = ({ svcOpsQuestion, id }: Partial<OpsRequest>): void => {
    if (svcOpsQuestion !== 'metrics' && svcOpsQuestion !== 'readiness') return;
    source[svcOpsQuestion]().then(
      // The parent may have gone away in the meantime.
      (svcOpsAnswer) => process.connected && process.send?.({ svcOpsAnswer, id }, () => undefined),
      // Send no reply: the parent times out.
      () => undefined,
    );
  };
  process.on('message', onMessage);
  return () => void process.off('message', onMessage);
}

let lastId = 0;

async function ask<K extends OpsRequest['svcOpsQuestion']>(
  child: ChildProcess,
  svcOpsQuestion: K,
  ms: number,
): Promise<Awaited<ReturnType<OpsSource[K]>>> {
  const request: OpsRequest = { svcOpsQuestion, id: ++lastId };
  let onMessage: (message: Partial<OpsReply>) => void = () => undefined;
  const answer = new Promise<never>((resolve, reject) => {
    onMessage = ({ svcOpsAnswer, id }) => {
      if (id === request.id) resolve(svcOpsAnswer as never);
    };
    child.on('message', onMessage as never);
    child.send(request, (error) => {
      if (error !== null) reject(error);
    });
  });
  try {
    return await withTimeout(answer, ms, () => new Error('the process did not answer in time'));
  } finally {
    child.off('message', onMessage as never);
  }
}

/** Restores NaN and Infinity, which are sent as null. */
function received({ values, ...metric }: MetricOfMoment): MetricOfMoment {
  const known = values.map((one) => ({ ...one, value: (one.value as number | null) ?? NaN }));
  return { ...metric, values: known };
}

/** The metrics and readiness of a child that calls {@link answerStarter}. Rejects after `ms`. */
export function processSource(child: ChildProcess, ms: number): OpsSource {
  return {
    metrics: async () => (await ask(child, 'metrics', ms)).map(received),
    readiness: () => ask(child, 'readiness', ms),
  };
}
