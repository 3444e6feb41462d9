import type { Parent } from '#sql/admissions/parents';

export type ParentFault = 'parent_not_found' | 'parent_not_admitted';

/**
 * Why the parent of a subject is invalid, or null. The parent of an outcome must be the admission of
 * an action. An admission may follow from any proof of the tenant whose payload is not erased.
 */
export function parentFault(
  kind: 'admission' | 'outcome',
  parent: Parent | null,
): ParentFault | null {
  if (parent === null) return 'parent_not_found';
  if (kind !== 'outcome') return null;
  return parent.effect === 'ADMIT' && parent.kind === 'action' ? null : 'parent_not_admitted';
}
