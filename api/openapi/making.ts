import type { Components } from './components.js';
import type { ApiDescription } from './description.js';
import type { JsonObject } from './types.js';
import type { OperationSpec } from './operation-spec.js';

/** Context of the document generator. */
export interface Making<Spec extends OperationSpec> {
  api: ApiDescription<Spec>;
  components: Components;
  /** Generates an example for a schema. */
  sample: (schema: JsonObject) => unknown;
}
