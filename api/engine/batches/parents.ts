import { findParents } from '#sql/parents';
import { parentProblem } from '../admission/parent-problem.js';
import type { Problem } from '../http/problem.js';
import type { TenantConnections } from '#sql/tenant-connections';
import type { ReadItem } from './read-item.js';

const ASKED_AT_ONCE = 1_000;

/** The items whose parent is not one that they can have, by index, each with its problem. */
export async function missingParents(
  tenantSql: TenantConnections,
  tenantNo: number,
  items: ReadonlyMap<number, ReadItem>,
): Promise<Map<number, Problem>> {
  const children = [...items].flatMap(([index, { parent }]) =>
    parent === null ? [] : [{ index, ...parent }],
  );
  const found = new Map<number, Problem>();
  for (let start = 0; start < children.length; start += ASKED_AT_ONCE) {
    const some = children.slice(start, start + ASKED_AT_ONCE);
    const proofIds = some.map(({ proofId }) => proofId);
    const parents = await tenantSql.run(tenantNo, (sql) => findParents(sql, tenantNo, proofIds));
    some.forEach(({ index, kind }, at) => {
      const problem = parentProblem(kind, parents[at] ?? null);
      if (problem !== null) found.set(index, problem);
    });
  }
  return found;
}
