import { SdkError } from '../errors.js';
import type { Answer } from '../http/attempt.js';
import { withDeadline, type Deadline } from '../http/deadline.js';
import { retryAfterMs } from '../http/retry-after.js';
import type { EngineOptions } from '../options.js';
import { openEngine, type Engine } from './engine.js';
import {
  receiptSchema,
  requireProofId,
  type Admitted,
  type Expected,
  type Receipt,
} from './receipt.js';
import { settledBy } from './settled.js';

const ASK_EVERY_MS = 1_000;

/**
 * Waits for the answer of an admission that was accepted, and is not decided yet, asking as often
 * as the service wants to be asked.
 *
 * Throws like `executeIntentHttp`; `timeout` has the `proofId`, under which it can be followed again.
 */
export async function followAdmissionHttp(
  options: EngineOptions,
  input: { proof_id: string },
): Promise<Admitted<Receipt>> {
  const engine = openEngine(options);
  const proofId = requireProofId(input.proof_id);
  return withDeadline(options, (deadline) =>
    followed(engine, { schema: receiptSchema, requestHash: null, proofId }, deadline),
  );
}

/** An answer of an admission lane, followed until it is settled. */
export async function settle<R extends Receipt>(
  engine: Engine,
  answer: Answer,
  expected: Expected<R>,
  deadline: Deadline,
): Promise<Admitted<R>> {
  const settled = settledBy(answer, expected);
  if (settled.state === 'admitted') return settled.receipt;
  const { proofId } = settled;
  await rest(answer, proofId, deadline);
  return followed(engine, { ...expected, proofId }, deadline);
}

async function followed<R extends Receipt>(
  engine: Engine,
  expected: Expected<R> & { proofId: string },
  deadline: Deadline,
): Promise<Admitted<R>> {
  const { proofId } = expected;
  for (;;) {
    const answer = await engine
      .ask({ method: 'GET', path: `/v1/admissions/${proofId}` }, deadline)
      .catch((error: unknown) => {
        throw naming(proofId, error);
      });
    const settled = settledBy(answer, expected);
    if (settled.state === 'admitted') return settled.receipt;
    await rest(answer, proofId, deadline);
  }
}

async function rest(answer: Answer, proofId: string, deadline: Deadline): Promise<void> {
  const ms = retryAfterMs(answer.headers, Date.now()) ?? ASK_EVERY_MS;
  try {
    await deadline.sleep(Math.max(ms, 50));
  } catch (error) {
    throw naming(proofId, error);
  }
}

/** What is accepted must not get lost with the error: its id is the way back to it. */
function naming(proofId: string, error: unknown): unknown {
  if (!(error instanceof SdkError)) return error;
  const { code, message, status, problem, retryAfterMs: after, cause } = error;
  return new SdkError(code, message, {
    proofId,
    cause,
    ...(status !== undefined && { status }),
    ...(problem !== undefined && { problem }),
    ...(after !== undefined && { retryAfterMs: after }),
  });
}
