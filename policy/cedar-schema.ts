import * as cedar from '@cedar-policy/cedar-wasm/nodejs';
import { messages, PolicySetError } from './policy-set.js';

export interface Type {
  type: string;
  required?: boolean;
  element?: Type;
  attributes?: Record<string, Type>;
  annotations?: Record<string, string>;
}

interface Namespace {
  commonTypes?: Record<string, Type>;
  entityTypes?: Record<string, { shape?: Type }>;
  actions?: Record<string, { appliesTo?: { context?: Type } }>;
}

/** @throws PolicySetError when the text does not parse */
export function readSchema(text: string) {
  const answer = cedar.schemaToJsonWithResolvedTypes(text);
  if (answer.type !== 'success') throw new PolicySetError(messages(answer.errors));
  const namespaces = Object.entries(answer.json as unknown as Record<string, Namespace>);
  const common = new Map(
    namespaces.flatMap(([namespace, { commonTypes = {} }]) =>
      Object.entries(commonTypes).map(([name, type]) => [within(namespace, name), type] as const),
    ),
  );
  /** Replaces the name of a common type by the declaration of that type. */
  const resolve = (use: Type): Type => {
    const aliased = common.get(use.type);
    if (aliased === undefined) return { ...use, type: use.type.replace('__cedar::', '') };
    const { required, annotations } = use;
    return {
      ...resolve(aliased),
      ...(required !== undefined && { required }),
      annotations: { ...resolve(aliased).annotations, ...annotations },
    };
  };
  return { namespaces, resolve };
}

export const within = (namespace: string, name: string): string =>
  namespace === '' ? name : `${namespace}::${name}`;
