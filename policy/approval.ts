import * as cedar from '@cedar-policy/cedar-wasm/nodejs';
import type { PolicyFiles } from '#sql/admissions/policies';

/** The name and the only value of the annotation that lets an approval waive a `forbid`. */
const ANNOTATION = 'requires';
const APPROVAL = 'approval';

export const OVERLAY_PREFIX = 'overlay.';

export const isOverlayId = (id: string): boolean => id.startsWith(OVERLAY_PREFIX);

function annotated(policies: PolicyFiles['policies']) {
  return Object.entries(policies).flatMap(([id, text]) => {
    // Skips the rules of tenants, which cannot have the annotation: parsing a rule takes a millisecond.
    if (isOverlayId(id)) return [];
    const answer = cedar.policyToJson(text);
    if (answer.type !== 'success') return [];
    const { annotations = {}, effect } = answer.json;
    if (!Object.hasOwn(annotations, ANNOTATION)) return [];
    return [{ id, isSound: effect === 'forbid' && annotations[ANNOTATION] === APPROVAL }];
  });
}

/** The ids of the policies that an approval waives. */
export function requiringApproval(policies: PolicyFiles['policies']): string[] {
  return annotated(policies).flatMap(({ id, isSound }) => (isSound ? [id] : []));
}

export function unsoundRequirements(policies: PolicyFiles['policies']): string[] {
  return annotated(policies).flatMap(({ id, isSound }) => (isSound ? [] : [id]));
}

export const REQUIRES_RULE = `use @${ANNOTATION} only as @${ANNOTATION}("${APPROVAL}") and only on a forbid: an approval waives this forbid`;
