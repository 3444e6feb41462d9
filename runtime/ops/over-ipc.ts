import type { ChildProcess } from 'node:child_process';
import { withTimeout } from '../concurrency/promises.js';
import type { MetricOfMoment, OpsSource, Readiness } from './health.js';

const QUESTIONS = ['metrics', 'readiness'] as const;
type Question = (typeof QUESTIONS)[number];

interface OpsRequest {
  svcOpsQuestion: Question;
  id: number;
}

interface OpsReply {
  svcOpsAnswer: unknown;
  id: number;
}

const isObject = (message: unknown): message is object =>
  typeof message === 'object' && message !== null;

const isOpsRequest = (message: unknown): message is OpsRequest =>
  isObject(message) && QUESTIONS.some((one) => one === (message as OpsRequest).svcOpsQuestion);

const isOpsReply = (message: unknown): message is OpsReply =>
  isObject(message) && 'svcOpsAnswer' in message;

/** Answers requests of the parent process while the IPC channel is open. */
export function answerStarter(source: OpsSource): () => void {
  const onMessage = (message: unknown): void => {
    if (!isOpsRequest(message)) return;
    source[message.svcOpsQuestion]().then(
      (svcOpsAnswer) => {
        const reply: OpsReply = { svcOpsAnswer, id: message.id };
        // The parent may have gone away in the meantime.
        if (process.connected) process.send?.(reply, () => undefined);
      },
      // Send no reply: the parent times out.
      () => undefined,
    );
  };
  process.on('message', onMessage);
  return () => void process.off('message', onMessage);
}

let lastId = 0;

async function ask(child: ChildProcess, svcOpsQuestion: Question, ms: number): Promise<unknown> {
  const id = ++lastId;
  let onMessage: (message: unknown) => void = () => undefined;
  const answer = new Promise<unknown>((resolve, reject) => {
    onMessage = (message) => {
      if (isOpsReply(message) && message.id === id) resolve(message.svcOpsAnswer);
    };
    child.on('message', onMessage);
    const question: OpsRequest = { svcOpsQuestion, id };
    child.send(question, (error) => {
      if (error !== null) reject(error);
    });
  });
  try {
    return await withTimeout(answer, ms, () => new Error('the process did not answer in time'));
  } finally {
    child.off('message', onMessage);
  }
}

/** NaN and Infinity are sent as null. */
type SentMetric = Omit<MetricOfMoment, 'values'> & {
  values: (Omit<MetricOfMoment['values'][number], 'value'> & { value: number | null })[];
};

function received(metric: SentMetric): MetricOfMoment {
  return { ...metric, values: metric.values.map((one) => ({ ...one, value: one.value ?? NaN })) };
}

/**
 * Reads the metrics and readiness of a child that calls {@link answerStarter}. Rejects after `ms`.
 */
export function processSource(child: ChildProcess, ms: number): OpsSource {
  return {
    metrics: async () => ((await ask(child, 'metrics', ms)) as SentMetric[]).map(received),
    readiness: () => ask(child, 'readiness', ms) as Promise<Readiness>,
  };
}
