import { incompletenessOf } from '#policy/run';
import type { Lane } from '#sql/admissions/intake';
import { readRunStates, type RunPlace, type RunState } from '#sql/admissions/runs';
import type { EngineContext } from '../context.js';
import { at, Problem } from '../http/problem.js';

interface Checked {
  lane: Lane;
  /** Lower-case hex. */
  requestHash: string;
  run: RunPlace | null;
}

/**
 * The problems of requests whose runs are closed, or incomplete for a close, by index. A worker checks
 * both again; the insert detects a `seq` in use.
 */
export async function runProblems(
  { tenantSql }: Pick<EngineContext, 'tenantSql'>,
  tenantNo: number,
  requests: Iterable<readonly [number, Checked]>,
): Promise<Map<number, Problem>> {
  const asked = [...requests].flatMap(([index, { run, ...request }]) =>
    run === null ? [] : [{ ...request, index, run }],
  );
  if (asked.length === 0) return new Map();
  const states = await tenantSql.run(tenantNo, (sql) =>
    readRunStates(sql, tenantNo, asked, incompletenessOf),
  );
  return new Map(
    asked.flatMap(({ index, run }, i) => {
      const problem = problemOf(run, states[i]!);
      return problem === null ? [] : [[index, problem]];
    }),
  );
}

function problemOf({ seq }: RunPlace, { fault, isClosed, isRepeat }: RunState): Problem | null {
  if (isRepeat) return null;
  if (isClosed) return new Problem('run_closed');
  if (fault === null) return null;
  return new Problem(
    'run_incomplete',
    `The run does not consist of ${seq} decided requests: ${fault}. Nothing was closed. Send the close when each has an answer.`,
    at('/run/seq', 'must be the number of requests in the run'),
  );
}
