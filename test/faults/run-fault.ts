import { setTimeout as sleep } from 'node:timers/promises';
import { audit } from './audit.js';
import { INJECT_MS, newOutcome, type Fault, type Heal, type Outcome, type Scene } from './fault.js';
import { inTime } from './pace.js';
import { untilComplete } from './completion.js';
import type { Observation } from './observation.js';
import { SIGNALS } from './signals.js';
import { PROCESSES } from './world.js';

/** Duration of the load before the fault, so that some requests are committed and others in flight. */
const BEFORE_MS = 1_000;
const AFTER_MS = 700;
const BRIEFLY_MS = 250;
const RECOVER_MS = 60_000;

/**
 * Causes a fault. Resolves when the fault should end, with a function that ends it.
 *
 * @param untilSeen resolves when operators can recognize the fault
 */
export async function beginFault(
  scene: Scene,
  fault: Fault,
  untilSeen?: () => unknown,
): Promise<Heal> {
  const injected = fault.inject(scene);
  const limit = fault.injectMs ?? INJECT_MS;
  const heal = await inTime(injected, limit, 'the fault did not happen').catch((error: unknown) => {
    // A fault that begins only after the time limit is ended at once.
    void injected.then((late) => late?.()).catch(() => undefined);
    throw error;
  });
  if (fault.holdMs !== undefined) {
    await sleep(fault.holdMs);
    await untilSeen?.();
  }
  return heal ?? (() => undefined);
}

/** Ends a fault; returns the milliseconds until every engine has acknowledged a request. */
export async function endFault({ client }: Scene, heal: Heal): Promise<number> {
  const answered = client.nextSuccess();
  const healed = performance.now();
  await heal();
  return (await inTime(answered, RECOVER_MS, 'no request succeeded after the fault')) - healed;
}

/**
 * Causes one fault under load and audits every acknowledged request afterwards.
 *
 * @param observation if given, compares what operators see with the signs that the fault's kind declares
 */
export async function runFault(
  scene: Scene,
  fault: Fault,
  observation?: Observation,
): Promise<Outcome> {
  const { world, client } = scene;
  const begin = { requests: client.records.requests.length, acts: client.acts.sent.length };
  const began = performance.now();
  const failedBefore = client.failed;
  const outcome = newOutcome(fault.name);
  const { problems } = outcome;
  // Waits without load: load would lengthen the wait and the audit.
  if (observation !== undefined) {
    if (fault.kind === undefined) throw new Error('the scenario declares no kind');
    problems.push(...(await observation.untilQuiet(SIGNALS[fault.kind])));
  }
  client.start();
  await inTime(client.nextSuccess(), INJECT_MS, 'no request succeeded before the fault');
  await sleep(fault.isBrief === true ? BRIEFLY_MS : BEFORE_MS);
  outcome.before = client.records.acknowledged.length;
  const observe = async (): Promise<void> => {
    if (observation === undefined) return;
    const { seen, problems: found } = await observation.finish();
    outcome.seen = seen;
    problems.push(...found);
  };
  try {
    observation?.begin();
    const heal = await beginFault(scene, fault, () => observation?.untilSeen());
    if (fault.mustReject !== undefined) {
      await client.stop();
      await heal();
      outcome.failed = client.failed - failedBefore;
      problems.push(...(await fault.mustReject(scene)));
      await observe();
      outcome.lost = outcome.double = null;
      return outcome;
    }
    const healed = performance.now();
    observation?.healed();
    outcome.answeredMs = await endFault(scene, heal);
    await sleep(fault.isBrief === true ? BRIEFLY_MS : AFTER_MS);
    await client.stop();
    outcome.failed = client.failed - failedBefore;
    if (fault.mustFail === true && outcome.failed === 0)
      problems.push('the fault had no effect: no request failed');
    const acts = client.acts.sent.slice(begin.acts);
    problems.push(...(await untilComplete(world, client, acts, fault.recoverMs ?? RECOVER_MS)));
    outcome.settledMs = performance.now() - healed;
    // Prometheus may scrape the sign of a brief fault only now.
    await observation?.untilSeen();
    observation?.settled();
    const requests = client.records.requests.slice(begin.requests);
    const audited = await audit(world, client, { requests, acts });
    outcome.lost = audited.lost.length;
    outcome.double = audited.double.length;
    problems.push(...audited.lost, ...audited.double, ...audited.wrong);
    problems.push(...((await fault.expects?.(scene)) ?? []));
    await observe();
  } catch (error) {
    problems.push(error instanceof Error ? (error.stack ?? error.message) : String(error));
  } finally {
    await client.stop();
    outcome.tookMs = performance.now() - began;
  }
  problems.push(...clearAfter(scene, fault));
  const note = fault.note?.();
  if (note !== undefined) outcome.note = note;
  return outcome;
}

/** Removes traps that were not triggered; returns the programs that exited unexpectedly. */
export function clearAfter({ world }: Scene, fault: Fault): string[] {
  for (const link of Object.values(world.links)) link.clear();
  return PROCESSES.flatMap((name) => {
    const ended = world.programs[name].ended.splice(0);
    return fault.mayExit?.includes(name) === true ? [] : ended;
  });
}
