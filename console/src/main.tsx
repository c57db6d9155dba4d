import { render } from "preact";

import { App } from "./app";
import { enter } from "./session";
import "./styles.css";

void enter();
render(<App />, document.getElementById("console")!);
